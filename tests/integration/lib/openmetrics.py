"""A strict reader of OpenMetrics text 1.0 (the parts that edgectl writes): what promtool check metrics looks at, and more.

parse(text) returns {family: (type, {(sample name, labels): value})}; whatever is against the format raises ValueError.
"""
import re

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"')
SAMPLE = re.compile(rf"({NAME})(?:\{{(.*)\}})? (-?(?:\d+(?:\.\d+)?(?:e[+-]?\d+)?|Inf)|NaN)$")
SUFFIX = {"counter": "_total", "gauge": "", "info": "_info"}


def _labels(text, line):
    found, rest = [], text
    while rest:
        m = LABEL.match(rest)
        if m is None:
            raise ValueError(f"labels: {line}")
        found.append((m.group(1), m.group(2)))
        rest = rest[m.end():]
        if rest:
            if not rest.startswith(",") or rest == ",":
                raise ValueError(f"labels: {line}")
            rest = rest[1:]
    if len({k for k, _ in found}) != len(found):
        raise ValueError(f"a label twice: {line}")
    return tuple(found)


def parse(text):
    if not text.endswith("# EOF\n") or text.count("# EOF") != 1:
        raise ValueError("must end with # EOF, once")
    families, meta, current = {}, {}, None
    for line in text.splitlines()[:-1]:
        if not line or line != line.strip():
            raise ValueError(f"blank line or blanks: {line!r}")
        if line.startswith("#"):
            m = re.match(rf"# (TYPE|UNIT|HELP) ({NAME}) (.+)$", line)
            if m is None:
                raise ValueError(f"not a comment of the format: {line}")
            kind, name, value = m.groups()
            if name != current:
                if name in families:
                    raise ValueError(f"{name} in two places")
                current, meta = name, {}
                families[name] = [None, {}]
            if kind in meta or families[name][1]:
                raise ValueError(f"{kind} twice or behind samples: {line}")
            meta[kind] = value
            if kind == "TYPE":
                if value not in SUFFIX:
                    raise ValueError(f"type: {line}")
                families[name][0] = value
            if kind == "UNIT" and not name.endswith("_" + value):
                raise ValueError(f"the unit is no part of the name: {line}")
            continue
        m = SAMPLE.match(line)
        if m is None:
            raise ValueError(f"not a sample: {line}")
        name, labels, value = m.group(1), _labels(m.group(2) or "", line), float(m.group(3))
        if current is None or {"TYPE", "HELP"} - set(meta):
            raise ValueError(f"TYPE or HELP is missing: {line}")
        kind = families[current][0]
        if name != current + SUFFIX[kind]:
            raise ValueError(f"{name} is not a {kind} of {current}")
        if (name, labels) in families[current][1]:
            raise ValueError(f"the same sample twice: {line}")
        if kind == "counter" and value < 0 or kind == "info" and value != 1:
            raise ValueError(f"value: {line}")
        families[current][1][name, labels] = value
    return {name: (kind, samples) for name, (kind, samples) in families.items()}


def value(families, name, **labels):
    """Of one sample, None when it is not there."""
    for _, samples in families.values():
        for (sample, pairs), v in samples.items():
            if sample == name and dict(pairs) == labels:
                return v
    return None
