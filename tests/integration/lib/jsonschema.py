"""The part of JSON Schema that edgectl/edgectl.schema.json uses. An unknown keyword is an error, so that nothing goes unchecked."""
import re

TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int, "null": type(None)}
IGNORED = {"description", "title", "$schema"}


def _type(value, names):
    names = [names] if isinstance(names, str) else names
    return any(isinstance(value, TYPES[n]) and (n != "integer" or not isinstance(value, bool)) for n in names)


def validate(value, schema, root, where="$"):
    """A list of sentences; empty = valid."""
    bad = []
    for key, arg in schema.items():
        if key in IGNORED:
            continue
        if key == "$ref":
            bad += validate(value, root["$defs"][arg.removeprefix("#/$defs/")], root, where)
        elif key == "type":
            if not _type(value, arg):
                return [f"{where}: {value!r} is no {arg}"]
        elif key == "const":
            bad += [] if value is arg or value == arg and type(value) is type(arg) else [f"{where}: {value!r} is not {arg!r}"]
        elif key == "enum":
            bad += [] if value in arg else [f"{where}: {value!r} is none of {arg}"]
        elif key == "minimum":
            bad += [] if value >= arg else [f"{where}: {value} < {arg}"]
        elif key == "pattern":
            bad += [] if re.search(arg, value) else [f"{where}: {value!r} does not match {arg}"]
        elif key == "required":
            bad += [f"{where}: lacks {name}" for name in arg if name not in value]
        elif key == "additionalProperties":
            assert arg is False
            bad += [f"{where}: has {name}" for name in value if name not in schema["properties"]]
        elif key == "properties":
            for name, sub in arg.items():
                if name in value:
                    bad += validate(value[name], sub, root, f"{where}.{name}")
        elif key == "items":
            for i, item in enumerate(value):
                bad += validate(item, arg, root, f"{where}[{i}]")
        elif key == "anyOf":
            tries = [validate(value, sub, root, where) for sub in arg]
            bad += [] if any(not t for t in tries) else min(tries, key=len)
        else:
            raise ValueError(f"unknown keyword {key}")
    return bad
