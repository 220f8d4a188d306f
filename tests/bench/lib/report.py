"""Figures of all rounds, the ratios of one round, and the table with its gates."""
import collections
import statistics

Row = collections.namedtuple("Row", "goal what ours reference figure ratio gate stretch verdict")


class Results:
    """Samples by (measure, subject, metric) and round; notes for what could not be measured."""

    def __init__(self):
        self.samples = collections.defaultdict(dict)
        self.notes = {}

    def add(self, turn, measure, subject, metrics):
        for metric, value in metrics.items():
            self.samples[measure, subject, metric][turn] = value

    def median(self, measure, subject, metric):
        values = self.samples.get((measure, subject, metric))
        return statistics.median(values.values()) if values else None

    def ratio(self, measure, subject, reference, metric):
        """Median over the rounds of what both showed in the same round."""
        ours = self.samples.get((measure, subject, metric), {})
        theirs = self.samples.get((measure, reference, metric), {})
        ratios = [ours[turn] / theirs[turn] for turn in ours if theirs.get(turn)]
        return statistics.median(ratios) if ratios else None

    def tsv(self):
        yield "measure\tsubject\tmetric\tround\tvalue"
        for (measure, subject, metric), values in self.samples.items():
            for turn, value in sorted(values.items()):
                yield f"{measure}\t{subject}\t{metric}\t{turn}\t{value:.8g}"


def number(value):
    return "-" if value is None else f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def row(goal, what, ours, reference, figure, ratio, gate, stretch, at_least=False):
    """gate and stretch bound ratio, which is the figure itself where there is no reference. gate None: a figure beside the goal."""
    if ratio is None:
        verdict = "not measured"
    elif gate is None:
        verdict = "no gate"
    elif ratio >= gate if at_least else ratio <= gate:
        verdict = "stretch" if stretch is not None and (ratio >= stretch if at_least else ratio <= stretch) else "met"
    else:
        verdict = "NOT met"
    sign = ">=" if at_least else "<="
    return Row(goal, what, number(ours), reference, number(figure), number(ratio), "-" if gate is None else f"{sign} {gate:g}",
               "-" if stretch is None else f"{sign} {stretch:g}", verdict)


def table(rows):
    head = Row("goal", "what", "ours", "against", "its figure", "ratio", "gate", "stretch", "verdict")
    widths = [max(len(str(r[i])) for r in [head, *rows]) for i in range(len(head))]
    for r in [head, *rows]:
        yield "  ".join(str(cell).ljust(width) for cell, width in zip(r, widths)).rstrip()
