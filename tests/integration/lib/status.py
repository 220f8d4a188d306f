"""Reading `edgectl status -j` (schema in edgectl(8))."""


def link(agent):
    """State of the link, or None while connectd does not answer."""
    got = agent.ctl("status")
    try:
        return got.json["connectd"].get("link")
    except (ValueError, KeyError, AttributeError):
        return None


def link_cause(agent):
    got = agent.ctl("status")
    try:
        return got.json["connectd"].get("cause")
    except (ValueError, KeyError, AttributeError):
        return None
