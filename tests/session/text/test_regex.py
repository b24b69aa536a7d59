"""Regular expressions against RE2, by onnxruntime, and patterns that no file should have."""

import time

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from ortmodule import InferenceSession
from ortmodule._native import core

Error = core().Error


def made(pattern):
    node = helper.make_node("RegexFullMatch", ["x"], ["y"], name="node_Regex", pattern=pattern)
    x = helper.make_tensor_value_info("x", TensorProto.STRING, ["n"])
    y = helper.make_tensor_value_info("y", TensorProto.BOOL, ["n"])
    graph = helper.make_graph([node], "g", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def ours(pattern, texts):
    session = InferenceSession(made(pattern).SerializeToString())
    return session.run(None, {"x": np.array(texts, object)})[0].tolist()


def theirs(pattern, texts):
    onnxruntime.set_default_logger_severity(4)
    session = onnxruntime.InferenceSession(made(pattern).SerializeToString())
    return session.run(None, {"x": np.array(texts, object)})[0].tolist()


TEXTS = [
    "", "a", "b", "ab", "ba", "aab", "abb", "abab", "aaaa", "A", "aB", "ä", "Ä", "aä", "a b",
    "a\nb", "\n", "a\n", "_1", "42", "4.2", "-", "]", "^", "a-b", "a{2}", "{", "a.b", "\t",
    "Straße", "日本", "STRASSE", "k", "\u212a", "x@y.com", " ", "ẞ", "ß", "ſ", "s", "12", "0", "\0",
    "*", "a*", "(", ")", "abbb", "aab", "İ", "ı", "i",
]  # fmt: skip
PATTERNS = [
    "", "a", "a*", "a+b?", "(a|b)*", "(?:ab)+", "a{2}", "a{2,}", "a{0,3}b", "a{,3}", "{",
    "a{2}b{1}",
    ".", ".*", "(?s).*", "(?s:.)b|a.b", "[ab]+", "[^ab]", "[^a]*", "[a-]", "[]]", "[^]a]", "[]-a]+",
    r"\d+", r"\D*", r"\w+", r"\W", r"\s", r"\S+", r"[\d.]+", r"[^\W_]+", r"\.", r"a\.b", r"\x41",
    r"\x{e4}", r"\bab\b", r"a\b.*", r"a\Bb", r"\B", "^a$", "a^b", "^$", "$", r"\Aab\z", "(?i)ab",
    "(?i)ä+", "(?i:a)B", "(?i)[a-b]+", "(?i)[^a]", "(?i)k", "(?i)straße", "(?m)a$\n^b", "a$\nb",
    "(?P<name>a)b", "(?<name>a)b", "a??b", "a*?", "a+?b", "a{1,2}?b", "(|a)b", "(a|)", "()", "()*",
    "(a*)*", "(a*)+b", "((a))", "[[:alpha:]]+", "[[:^alpha:]]+", "[[:digit:][:space:]]*", "日.",
    "[日本]+", "[a-ö]+", r"[\]\-a]+", r"\{", "a|ab|abab", "(?i-s)a.b", "(?U)a+", r"[\x41-\x42]+",
    r"\t", "a(?i)b", r"[\t\n]", "(?-i)a", r"\_1",
    r"\101", r"\0", r"[\0-\142]+", r"\60", r"\0612", r"\Qa.b\E", r"\Qa{2}", r"\Q\E",
    r"a\Q\E{2}", r"\Qab\E*", r"a\Q*\E", r"\Q(", r"(\Q)\E|b)", "a(?i)*", "a(?i){2}b",
    "(?i)\u212a", "(?i)[^k]", r"(?i)\W", r"(?i)[^\W]", r"(?i)[[:^alpha:]]+", "(?i)[ß]",
    "(?i)ẞ+", "(?i)[j-l]+", r"(?i)\x{17f}",
    r"\pL+", r"\PL+", r"\p{Lu}", r"\p{^Lu}", r"\P{^Lu}", r"[\p{Greek}\pN]+", r"[^\p{Latin}]*",
    r"(?i)\p{Lu}+", r"(?i)\P{Lu}+", r"(?i)[^\p{Lu}]", r"\p{Han}+", r"\p{Any}*", r"\pL\pN?",
    r"[\p{Ll}-]+", r"\pN{2}", r"[[:word:]]+", r"[[:^word:]]", r"\p{^Greek}*",
    "[[:]", "[^[:]*", "[[:a]+", "[[:^a-b]+",
]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns(pattern):
    assert ours(pattern, TEXTS) == theirs(pattern, TEXTS)


def pattern_of(random, depth=3):
    """A random pattern over few letters."""
    if depth == 0 or random.random() < 0.25:
        return random.choice(["a", "b", ".", "[ab]", "[^a]", r"\w", r"\b", "(?i:A)", "ä", ""])
    parts = [pattern_of(random, depth - 1) for _ in range(random.integers(1, 4))]
    if random.random() < 0.3:
        return f"({'|'.join(parts)})"
    if random.random() < 0.6:
        return f"(?:{''.join(parts)}){random.choice(['*', '+', '?', '{2}', '{1,3}', '{2,}'])}"
    return "".join(parts)


@pytest.mark.parametrize("seed", range(60))
def test_random_patterns(seed):
    random = np.random.default_rng(seed)
    pattern = pattern_of(random)
    letters = list("aabbAä \n")
    texts = ["".join(random.choice(letters, random.integers(0, 9))) for _ in range(40)]
    assert ours(pattern, texts) == theirs(pattern, texts), pattern


@pytest.mark.parametrize(
    "pattern", ["(a*)*b", "(a|a)*b", "(a|aa)+$b", "(.*){20}b", "([a-z]+)*[0-9]"]
)
def test_no_pattern_takes_long(pattern):
    """These take others time that is exponential in the text."""
    start = time.perf_counter()
    assert ours(pattern, ["a" * 5000]) == [False]
    assert time.perf_counter() - start < 20


CASED = [chr(c) for c in range(0x530) if chr(c).lower() != chr(c).upper()]


@pytest.mark.parametrize("negated", ["", "^"])
def test_letters_in_any_case(negated):
    """Each one beside all others; those with one upper case in common are one, too."""
    some = CASED + ["\u1c80", "\u1e9b", "\u1e9e", "\u1fbe", "\u2126", "\u212a", "\u212b"]
    for at in range(0, len(CASED), 60):
        pattern = f"(?i)[{negated}{''.join(CASED[at : at + 60 : 2])}]"
        assert ours(pattern, some) == theirs(pattern, some), at


CLASSES = [
    "C", "Cc", "Cf", "Co", "Cs", "L", "Ll", "Lm", "Lo", "Lt", "Lu", "M", "Mc", "Me", "Mn", "N",
    "Nd", "Nl", "No", "P", "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "S", "Sc", "Sk", "Sm", "So",
    "Z", "Zl", "Zp", "Zs", "Any", "Arabic", "Common", "Cyrillic", "Greek", "Han", "Hangul",
    "Hiragana", "Inherited", "Latin", "Nko", "Old_Italic", "Phags_Pa", "SignWriting", "Thai",
]  # fmt: skip
CODES = [*range(0x3400), *range(0xA000, 0xD800, 7), *range(0xE000, 0x20000, 5), 0xE0001, 0x10FFFF]


@pytest.mark.parametrize("name", CLASSES)
def test_classes_of_unicode(name):
    letters = [chr(code) for code in CODES]
    got, wanted = ours(rf"\p{{{name}}}", letters), theirs(rf"\p{{{name}}}", letters)
    assert [hex(c) for c, a, b in zip(CODES, got, wanted, strict=True) if a != b] == []


REFUSED = {
    "(a": r"a group has no '\)'",
    "a)": r"'\)' at 1 has no",
    "[a": r"'\[' at 0 has no",
    "*a": r"'\*' at 0 repeats nothing",
    "a**": "two repetitions follow each other",
    "a{2,1}": "repetition at 1 is not",
    "a{1001}": "repetition at 1 is not",
    "((a{1000}){1000}){1000}": "it is too large",
    "(((((){1000}){1000}){1000}){1000}){1000}": "its repetitions are too many",
    "(" * 3000 + "a" + ")" * 3000: "groups are more than 200 deep",
    "[b-a]": "a range before 4 ends",
    r"\1": r"'\\1' is not supported",
    r"\p{Lx}": "'Lx' is no class of Unicode",
    r"\p{Cn}": "'Cn' is no class of Unicode",
    r"\p{}": "'' is no class of Unicode",
    r"\pé": "'é' is no class of Unicode",
    r"\p{Lu": r"'\{' before 3 has no '\}'",
    r"\p": "it ends too early",
    r"[a-\pL]": r"'\\p' is not supported",
    r"\C": r"'\\C' is not supported",
    r"\é": r"'\\é' is not supported",
    r"\E": r"'\\E' is not supported",
    r"\8": r"'\\8' is not supported",
    "{1}a": r"'\{' at 0 repeats nothing",
    "(?i)*": r"'\*' at 4 repeats nothing",
    "a|{2}": r"'\{' at 2 repeats nothing",
    "(?i-)a": "'-' before 4 has no flag",
    "(?--i)a": "'-' at 3 is no flag",
    "a\\": "it ends in a backslash",
    r"\xg": "has no code",
    r"\x{110000}": "is no character",
    "(?=a)": "'=' at 2 is no flag",
    "(?P<>a)": "has no name",
    "(?P<a": "has no name",
    "[[:letters:]]": "is no class",
    "(?i": "is not known",
}


@pytest.mark.parametrize("pattern", REFUSED, ids=range(len(REFUSED)))
def test_what_no_file_should_have(pattern):
    with pytest.raises(Error, match=REFUSED[pattern]) as caught:
        InferenceSession(made(pattern).SerializeToString())
    text = str(caught.value)
    assert "node_Regex" in text and text.startswith("pattern '") and len(text) < 400
