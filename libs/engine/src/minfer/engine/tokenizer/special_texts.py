"""Tokens that files leave unmarked and that are known by their text.

Converters have lost the type or the role of these often enough that llama.cpp goes by the text too (its
issue 9606); the sets are the ones it uses.
"""

from __future__ import annotations

from typing import Final

END_OF_TURN: Final = (
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "<｜end▁of▁sentence｜>",
    "<end_of_utterance>",
)
"""In order of preference for the role of `tokenizer.ggml.eot_token_id`."""

END_OF_MESSAGE: Final = "<|eom_id|>"

END_OF_GENERATION: Final = (
    *END_OF_TURN,
    END_OF_MESSAGE,
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "</s>",
    "[EOS]",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "[e~[",
)
"""All of these end a generation and are control tokens, whatever type the file gives them."""

INFILL_ROLES: Final[dict[str, tuple[str, ...]]] = {
    "fim_pre": (
        *("<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>"),
        *("<|code_prefix|>", "<|prefix|>"),
    ),
    "fim_suf": (
        *("<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>"),
        *("<|code_suffix|>", "<|suffix|>"),
    ),
    "fim_mid": (
        *("<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>"),
        *("<|code_middle|>", "<|middle|>"),
    ),
    "fim_pad": ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    "fim_rep": ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    "fim_sep": ("<|file_sep|>",),
}
"""Fill-in-the-middle roles; control tokens too."""

INFILL_ENDS: Final = ("fim_pad", "fim_rep", "fim_sep")
"""Roles that end a generation: what follows belongs to another file."""

ALWAYS_VISIBLE: Final = ("<|channel|>", "<|message|>", "<|start|>", "<|constrain|>")
"""gpt-oss frames its channels with these; they are part of what the caller reads."""

NOT_AN_END: Final = (
    ("<|end|>", ({"<|call|>", "<|calls|>"}, {"<|return|>", "<|flush|>"})),
    ("</s>", ({"<|tool_response>"},)),
)
"""A text, and sets of other ends: where one of each is present, the text ends a part and not the answer."""
