"""The package and public functions that throw, with those whose docstring does not say what they throw."""

import re

DECLARATION = re.compile(
    r"^ *(?:@\w+(?:\([^)]*\))?\s+)*(?:(?P<access>package|public)\s+)?"
    r"(?:(?:static|final|mutating|nonmutating|override|consuming|borrowing|convenience|required|nonisolated)\s+)*"
    r"(?:func\s+(?P<name>[^\s(<]+)|(?P<init>init\??))(?=(?P<rest>[^{}]*))", re.MULTILINE)
PROTOCOL = re.compile(r"^(?:package|public) protocol [^{]*\{\n(?P<body>[\s\S]*?)^\}", re.MULTILINE)
# Words with which a docstring says when a function throws, or what.
SAYS = re.compile(r"(?i:\b(?:throw(?:s|ing)?|rethrows|fail(?:s|ed|ure|ures)?|errors?|refuse[sd]?|errno)\b)|\bE[A-Z]{3,}\b")


# Encodable and Decodable, of the standard library.
CODABLE = {("encode", ("to",)), ("init", ("from",))}


class Function:
    """A function that throws. `key` is its name and the labels of its parameters."""

    def __init__(self, line, match, signature, comment):
        self.line, self.comment = line, comment
        self.name = match["name"] or "init"
        labels = re.findall(r"(?:^|,)\s*(?:@\w+\s+)*(\w+)(?:\s+\w+)?\s*:", parameters(signature))
        self.key = (self.name, tuple(labels))
        self.says = bool(SAYS.search(comment))


def parameters(signature):
    """The text between the outer parentheses, without what types have in parentheses or brackets of their own."""
    depth, inner = 0, ""
    for character in signature[signature.find("("):]:
        if character in ")]":
            depth -= 1
        if depth == 1 and character not in "([)]":
            inner += character
        if character in "([":
            depth += 1
        elif depth == 0:
            break
    return inner


def throwing(text, match):
    """The signature of a declaration that throws, else None. It ends at its body, or at a line that does not go on."""
    rest = match["rest"]
    depth = 0
    for position, character in enumerate(rest):
        depth += (character in "([") - (character in ")]")
        if character == "\n" and depth == 0 and not re.match(r"\s*(?:->|throws|where\b|\))", rest[position:]):
            rest = rest[:position]
            break
    # Neither a function among the parameters, nor the type of the error.
    outside, depth = "", 0
    for character in rest:
        depth -= character == ")"
        outside += character if depth == 0 else ""
        depth += character == "("
    return rest if re.search(r"\bthrows\b", outside) and "throws(Never)" not in rest else None


def described(text, match):
    """The comment above a declaration."""
    lines = text[:match.start()].rstrip("\n").split("\n")
    comment = []
    while lines and re.match(r"\s*(?:///|@|#if\b)", lines[-1]):
        comment.append(lines.pop().strip())
    return " ".join(line for line in reversed(comment) if line.startswith("///"))


def functions(text, requirements=False):
    """The throwing functions of a file that other modules see; the requirements of its protocols, or all others. A
    requirement has the docstring of its protocol, too, which says what all of them throw."""
    protocols = [(found.start("body"), found.end("body"), described(text, found)) for found in PROTOCOL.finditer(text)]
    for match in DECLARATION.finditer(text):
        inside = [comment for start, end, comment in protocols if start <= match.start() < end]
        if bool(inside) != requirements or not (inside or match["access"]):
            continue
        signature = throwing(text, match)
        if signature is not None:
            comment = " ".join((*inside, described(text, match)))
            yield Function(text.count("\n", 0, match.start()) + 1, match, signature, comment)


def silent(texts):
    """Yields (file, function) of the functions whose docstring does not say what they throw. `texts` has the text of each
    file. A function that a protocol requires throws what the protocol says."""
    required = CODABLE | {function.key for text in texts.values() for function in functions(text, True) if function.says}
    for path, text in texts.items():
        for function in (*functions(text, True), *functions(text)):
            if not function.says and function.key not in required:
                yield path, function
