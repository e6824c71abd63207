"""What a person reads before approving: the text of each statement, and what it is given."""

import json
from collections.abc import Mapping

from counterfoil.adapters.sql.statements import Known
from counterfoil.core.words import Json


def preview(arguments: dict[str, Json], statements: Mapping[str, Known]) -> str:
    """Return normalised arguments as a text for people."""
    calls = arguments.get("statements")
    if calls is None:
        calls = [{**arguments, "name": arguments["statement"]}]
    return "\n".join(line for call in calls for line in _lines(call, statements[call["name"]]))


def _lines(call: dict[str, Json], known: Known) -> list[str]:
    lines = [f"{known.name}:", f"  {' '.join(known.statement.text.split())}"]
    given: dict[str, Json] = call.get("parameters", {})
    lines += [f"  {name} = {_shown(value)}" for name, value in given.items()]
    for rows in (known.statement.rows, call.get("rows")):
        if rows is not None:
            lines.append(f"  unless it meets {rows} rows, nothing happens")
    if "returning" in call:
        lines.append(f"  unless it returns {_shown(call['returning'])}, nothing happens")
    return lines


def _shown(value: Json) -> str:
    return json.dumps(value, ensure_ascii=True, allow_nan=False)
