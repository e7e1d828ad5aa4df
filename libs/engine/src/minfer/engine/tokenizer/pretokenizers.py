"""How byte-level BPE cuts text into words before it merges, by the value of `tokenizer.ggml.pre`.

Merges never cross a cut, so a wrong rule yields ids that decode to the right text and mean something else
to the model. The patterns are the ones that the models' publishers ship in their tokenizer.json. Where a
row has several, each cuts what the ones before it left; what a pattern does not match is a word too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from minfer.engine.tokenizer.errors import UnknownPreTokenizerError

# English contractions. Spelled out and not (?i:…): case folding would also take ſ for s.
_CONTRACTION: Final = r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]"
_LINES_AND_SPACES: Final = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_SYMBOLS: Final = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_LETTERS: Final = r"[^\r\n\p{L}\p{N}]?\p{L}+"

_GPT2: Final = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def _llama3_like(numbers: str) -> str:
    return f"{_CONTRACTION}|{_LETTERS}|{numbers}|{_SYMBOLS}|{_LINES_AND_SPACES}"


_LLAMA3: Final = _llama3_like(r"\p{N}{1,3}")
_QWEN2: Final = _llama3_like(r"\p{N}")

# A word in one case, or capitalised, optionally with its contraction.
_UPPER: Final = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER: Final = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_SLASHED_SYMBOLS: Final = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"


def _cased_words(suffix: str) -> str:
    lead = r"[^\r\n\p{L}\p{N}]?"
    return f"{lead}{_UPPER}*{_LOWER}+{suffix}|{lead}{_UPPER}+{_LOWER}*{suffix}"


_TEKKEN: Final = rf"{_cased_words('')}|\p{{N}}|{_SLASHED_SYMBOLS}|{_LINES_AND_SPACES}"
_GPT4O: Final = (
    rf"{_cased_words(f'(?:{_CONTRACTION})?')}|\p{{N}}{{1,3}}|{_SLASHED_SYMBOLS}|{_LINES_AND_SPACES}"
)

_DEEPSEEK3: Final = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"""
    r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*"
    rf"|{_LINES_AND_SPACES}"
)
# Letters that have case, as DeepSeek LLM lists them.
_DEEPSEEK_LETTERS: Final = (
    r"A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af"
    r"\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5"
    r"\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba"
    r"\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45"
    r"\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe"
    r"\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc"
    r"\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139"
    r"\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3"
    r"\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06"
    r"\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3"
    r"\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df"
    r"\U0001e900-\U0001e943"
)
_DEEPSEEK_ASIAN: Final = r"[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """Rules of one name. ignore_merges: a word that is a token as a whole is taken unmerged (llama.cpp
    PR 7193). adds_bos: the default where the file does not say."""

    patterns: tuple[str, ...]
    ignore_merges: bool = False
    adds_bos: bool = False


_RULES: Final[tuple[tuple[PreTokenizer, tuple[str, ...]], ...]] = (
    (
        PreTokenizer((_GPT2,)),
        (
            *("gpt-2", "phi-2", "mpt", "olmo", "jais", "trillion", "granite-docling", "exaone4", "mellum"),
            *("gigachat", "a.x-4.0", "modern-bert"),
        ),
    ),
    (
        PreTokenizer((r"\p{N}", _GPT2)),
        (
            *("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"),
            "mellum2",
        ),
    ),
    (
        PreTokenizer((_LLAMA3,), ignore_merges=True, adds_bos=True),
        ("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"),
    ),
    (PreTokenizer((_LLAMA3,)), ("dbrx", "smaug-bpe", "glm4", "chatglm-bpe")),
    (
        PreTokenizer((_QWEN2,)),
        (
            *("qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "stablelm2", "megrez", "hunyuan"),
            *("solar-open", "grok-2"),
        ),
    ),
    (
        PreTokenizer(
            (
                rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
                rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_LINES_AND_SPACES}",
            )
        ),
        ("qwen35",),
    ),
    (PreTokenizer((r"\p{N}{1,3}", _llama3_like(r"\p{N}+")), ignore_merges=True), ("minicpm5",)),
    (PreTokenizer((_TEKKEN,), ignore_merges=True, adds_bos=True), ("tekken",)),
    (PreTokenizer((_GPT4O,)), ("gpt-4o", "llama4", "kanana2", "minimax-m2")),
    (
        PreTokenizer(
            (
                r"[\r\n]",
                rf"\s?[{_DEEPSEEK_LETTERS}]+",
                r"\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
                r"(?<!\s)\s+\Z",  # the lookbehind keeps a long run of spaces from costing its square
                _DEEPSEEK_ASIAN,
                r"\p{N}+",
            )
        ),
        ("deepseek-llm",),
    ),
    (
        PreTokenizer((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _DEEPSEEK_ASIAN, r"\p{N}")),
        ("deepseek-coder",),
    ),
    (
        PreTokenizer((r"\p{N}{1,3}", r"[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", _DEEPSEEK3)),
        ("deepseek-v3", "hunyuan-dense", "joyai-llm"),
    ),
    (PreTokenizer((r"[\p{P}$+<=>^~|`]+", _GPT2, r"[0-9][0-9][0-9]")), ("falcon",)),
    (
        PreTokenizer(
            (
                rf"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|{_LETTERS}|\p{{N}}|{_SYMBOLS}"
                r"|\s*[\r\n]|\s+(?!\S)|\s+",
            )
        ),
        ("bailingmoe", "bailingmoe2", "llada-moe"),
    ),
    (
        PreTokenizer((rf"{_CONTRACTION}|{_LETTERS}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_LINES_AND_SPACES}",)),
        ("seed-coder",),
    ),
    (PreTokenizer((r" ?[^(\s|.,!?…。，、।۔،)]+",)), ("poro-chat", "bloom", "gpt3-finnish")),
    (PreTokenizer((r" ?[^(\s|.,!?…。，、।۔،)]+", r"\p{N}")), ("viking",)),
    (PreTokenizer((r"[\p{P}$+<=>^~|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")), ("default",)),
)

PRE_TOKENIZERS: Final[dict[str, PreTokenizer]] = {name: rule for rule, names in _RULES for name in names}


def pre_tokenizer(name: str) -> PreTokenizer:
    """The rules of that name. Raises UnknownPreTokenizerError."""
    found = PRE_TOKENIZERS.get(name)
    if found is None:
        raise UnknownPreTokenizerError(
            f"tokenizer.ggml.pre is {name!r}, and there is no rule of that name to split text by",
            hint="if this model splits text as a known one does, write that name into a copy with the gguf "
            "package: gguf-new-metadata --pre-tokenizer NAME IN.gguf OUT.gguf; known are "
            f"{', '.join(sorted(PRE_TOKENIZERS))}",
        )
    return found


def compile_splitter(rule: PreTokenizer) -> Callable[[str], list[str]]:
    """A function from a text to its words; joined, they are the text again."""
    import regex

    *first, last = [regex.compile(f"({pattern})") for pattern in rule.patterns]

    def split(text: str) -> list[str]:
        parts = [text]
        for pattern in first:
            parts = [piece for part in parts for piece in pattern.split(part) if piece]
        words: list[str] = []
        for part in parts:
            found = last.findall(part)
            if sum(map(len, found)) != len(part):  # the pattern leaves gaps
                found = [piece for piece in last.split(part) if piece]
            words += found
        return words

    return split
