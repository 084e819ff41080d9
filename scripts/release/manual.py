"""Manual pages and shell completions, made of what the binary itself says of its commands.

A page has the sections of a command's --help: every command and flag that a user can see there, and
nothing that somebody would have to keep in step with them.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

#: What the page of the binary says in one line; those of its commands say it themselves.
SUMMARY = "storage array in user space that shows what offloads cost below the host layer"

#: Where shells look for completions, below the root of an installation.
COMPLETIONS = {
    "bash": "usr/share/bash-completion/completions/arraysim",
    "fish": "usr/share/fish/vendor_completions.d/arraysim.fish",
    "zsh": "usr/share/zsh/vendor-completions/_arraysim",
}

#: The headings of a help text. What stands before the first is the description.
HEADINGS = ("Usage", "Aliases", "Examples", "Available Commands", "Flags", "Global Flags")


@dataclass
class Command:
    """A command, as its --help shows it: its words, its summary, and its sections by heading."""

    words: list[str]
    summary: str
    sections: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of its page."""
        return "-".join(self.words)


def say(binary: Path, *words: str) -> str:
    """Return what the binary prints."""
    return subprocess.run([binary, *words], capture_output=True, text=True, check=True).stdout


def sections(text: str) -> dict[str, str]:
    """Split a help text by its headings; "" is what stands before them."""
    found, name = {"": ""}, ""
    for line in text.splitlines():
        if line.endswith(":") and line[:-1] in HEADINGS:
            name = line[:-1]
            found[name] = ""
        elif not line.startswith('Use "arraysim'):
            found[name] += line + "\n"
    return {k: v.strip("\n") for k, v in found.items()}


def commands(binary: Path, words: tuple[str, ...] = (), summary: str = SUMMARY) -> Iterator[Command]:
    """Yield the command of these words and all below it."""
    parts = sections(say(binary, *words, "--help"))
    yield Command(["arraysim", *words], summary, parts)
    for line in parts.get("Available Commands", "").splitlines():
        name, _, short = line.strip().partition(" ")
        if name != "help":
            yield from commands(binary, (*words, name), short.strip())


#: What roff takes for something else, or shows as another character.
GLYPHS = str.maketrans({"\\": "\\e", "-": "\\-", "'": "\\(aq", "`": "\\(ga", "^": "\\(ha", "~": "\\(ti"})


def roff(text: str) -> str:
    """Return text with nothing in it that roff takes for a request."""
    return re.sub(r"(?m)^\.", r"\\&.", text.translate(GLYPHS))


def typed(text: str) -> str:
    """Return lines that are shown as they are typed."""
    return f".nf\n{roff(text)}\n.fi\n"


def paragraphs(text: str) -> str:
    """Return paragraphs; those with lines that are indented stay as they are."""
    out = []
    for p in text.split("\n\n"):
        out.append(typed(p) if re.search(r"(?m)^\s", p) else roff(p) + "\n")
    return ".PP\n".join(out)


FLAG = re.compile(r"^\s+(?:(-\w), )?(--[\w-]+)(?: (\S+))?(?:\s{2,}(.*))?$")


def flags(text: str) -> str:
    """Return a list of flags."""
    out = ""
    for line in text.splitlines():
        m = FLAG.match(line)
        if not m:
            raise ValueError(f"no flag: {line!r}")
        names = ", ".join(f"\\fB{roff(n)}\\fR" for n in (m[1], m[2]) if n)
        value = f" \\fI{roff(m[3])}\\fR" if m[3] else ""
        out += f".TP\n{names}{value}\n{roff(m[4] or '')}\n"
    return out


def page(c: Command, version: str, epoch: int) -> str:
    """Return the manual page of a command."""
    date = time.strftime("%Y-%m-%d", time.gmtime(epoch))
    out = f'.TH {roff(c.name.upper())} 1 "{date}" "arraysim {roff(version)}" "User Commands"\n'
    out += f".SH NAME\n{roff(c.name)} \\- {roff(c.summary)}\n"
    out += ".SH SYNOPSIS\n" + typed("\n".join(line.strip() for line in c.sections["Usage"].splitlines()))
    out += ".SH DESCRIPTION\n" + paragraphs(c.sections[""])
    if aliases := c.sections.get("Aliases"):
        out += ".SH ALIASES\n" + roff(aliases.strip()) + "\n"
    below = []
    if listed := c.sections.get("Available Commands"):
        out += ".SH COMMANDS\n"
        for line in listed.splitlines():
            name, _, short = line.strip().partition(" ")
            out += f".TP\n\\fB{roff(name)}\\fR\n{roff(short.strip())}\n"
            below += [f"{c.name}-{name}"] if name != "help" else []
    if own := c.sections.get("Flags"):
        out += ".SH OPTIONS\n" + flags(own)
    if inherited := c.sections.get("Global Flags"):
        out += ".SH OPTIONS OF ALL COMMANDS\n" + flags(inherited)
    if examples := c.sections.get("Examples"):
        out += ".SH EXAMPLES\n" + typed("\n".join(line.removeprefix("  ") for line in examples.splitlines()))
    above = ["-".join(c.words[:-1])] if len(c.words) > 1 else []
    if see := above + below:
        out += ".SH SEE ALSO\n" + ",\n".join(f"\\fB{roff(name)}\\fR(1)" for name in see) + "\n"
    return out


def pages(binary: Path, version: str, epoch: int) -> dict[str, str]:
    """Return the manual pages of all commands by file name."""
    return {f"{c.name}.1": page(c, version, epoch) for c in commands(binary)}


def completions(binary: Path) -> dict[str, str]:
    """Return the completions by path below the root of an installation."""
    return {path: say(binary, "completion", shell) for shell, path in COMPLETIONS.items()}
