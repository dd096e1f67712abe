"""Reading Spark's text: the sentence in a line, the innermost cause in a stack trace."""

import re

_EXCEPTIONS = re.compile(r"^(?:[\w$]+\.)+[\w$]*(?:Exception|Error)[\w$]*: ")
_CONDITION = re.compile(r"\[[A-Z_][A-Z0-9_]+(?:\.[A-Z0-9_]+)*\]")
_SQLSTATE = re.compile(r"\s*SQLSTATE: \w+$")
_LONGEST = 400


def root_cause(text: str) -> str:
    """Return the innermost cause in a Java stack trace, without class names if it has a message."""
    causes = re.findall(r"^Caused by: (.+)$", text, re.MULTILINE)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return _cleaned(causes[-1] if causes else (lines[0] if lines else "Spark gave no reason"))


def sentence(line: str) -> str:
    """Return what Spark's analyser says in a line: no error condition before it, no plan behind it."""
    message = line.strip().rpartition(" terminated with exception: ")[2]
    return _cleaned(message).partition(";")[0].strip().rstrip(".")


def line_of(match: re.Match[str]) -> str:
    """Return the line in which a match begins."""
    start = match.string.rfind("\n", 0, match.start()) + 1
    return match.string[start:].partition("\n")[0]


def _cleaned(line: str) -> str:
    message = _CONDITION.sub("", _EXCEPTIONS.sub("", line), count=1).strip()
    return _SQLSTATE.sub("", message)[:_LONGEST]
