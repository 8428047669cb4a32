"""The counts of scripts/docs/prose, and their bounds."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

# In 1,000 words: gocryptfs, age, fscrypt and littlefs have 5 to 11 "that", and 0 to 2 negative subjects.
MOST_THAT = 12
MOST_NEGATIVE = 3

# In 1,000 words of comments, swift-nio-ssl has 13.0 "that", age 12.2, GRDB 8.4.
MOST_THAT_IN_COMMENTS = 14
MOST_NEGATIVE_IN_COMMENTS = 5
COMMENT = re.compile(r"\s*///? ?(?!MARK)(.*)")

# A short page counts as one of this length: one word more or less decides nothing.
FEWEST_WORDS = 250

# A negative subject stands at the beginning of a sentence, or after a mark or a word that begins a clause.
NEGATIVE = re.compile(
    r"(?:^|[.:;,(–] |\b(?:and|but|or|so|because|if|when|while|that|which|where|unless|until|then|whose) )"
    r"(?:no|nothing|nobody|none|not one)\b"
    r"|\b(?:nothing|nobody|no one) (?:is|are|was|has|can|may|must|will|would|does|else|\w+[^s\W]s)\b",
    re.IGNORECASE | re.MULTILINE)
WORD = re.compile(r"[A-Za-z0-9][\w'’./-]*")
OPENING = re.compile(r"(?:The|A|It|If)\b")


def pages():
    names = ["README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "DESIGN.md"]
    return [ROOT / name for name in names] + sorted((ROOT / "Manual").glob("*.md"))


def comments(text):
    """The comments of a Swift file, each as a paragraph."""
    paragraphs = [[]]
    for line in text.split("\n"):
        if match := COMMENT.fullmatch(line):
            paragraphs[-1].append(match[1])
        elif paragraphs[-1]:
            paragraphs.append([])
    return "\n\n".join("\n".join(lines) for lines in paragraphs)


def sentences(text):
    """The sentences of a Markdown page, without code, tables, headings, pictures and comments. A piece of code in a
    sentence counts as one word."""
    text = re.sub(r"^```.*?^```", "\n", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"^(?:\||#|!\[).*", "\n", text, flags=re.MULTILINE)
    # An item of a list is a paragraph.
    text = re.sub(r"^ *(?:[-*]|\d+\.) +", "\n", text, flags=re.MULTILINE)
    text = re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", text)
    text = re.sub(r"`[^`]+`", "CODE", text)
    text = re.sub(r"[*_]{1,2}([^*_\n]+)[*_]{1,2}", r"\1", text)
    for paragraph in re.split(r"\n\s*\n", text):
        for sentence in re.split(r"(?<=[.?!:])\s+(?=[A-Z\"(])", " ".join(paragraph.split())):
            if WORD.search(sentence):
                yield sentence


class Counts:
    def __init__(self, text):
        found = list(sentences(text))
        self.words = sum(len(WORD.findall(each)) for each in found)
        self.that = sum(len(re.findall(r"\bthat\b", each, re.IGNORECASE)) for each in found)
        self.negative = sum(len(NEGATIVE.findall(each)) for each in found)
        self.openings = 100 * sum(bool(OPENING.match(each)) for each in found) / max(len(found), 1)

    def rate(self, count):
        return 1000 * count / max(self.words, FEWEST_WORDS)


def excesses(text, most_that=MOST_THAT, most_negative=MOST_NEGATIVE):
    """Messages for the counts that exceed their bound."""
    counts = Counts(text)
    for name, count, most in (("that", counts.that, most_that), ("negative subjects", counts.negative, most_negative)):
        if counts.rate(count) > most:
            yield f"{counts.rate(count):.1f} {name} in 1,000 words: at most {most}"
