"""`minfer-run tokenize [FLAGS] MODEL [TEXT WORDS…]`: the tokens of a text, without loading the model."""

from __future__ import annotations

from pathlib import Path

import click

from minfer.cli import HELP
from minfer.cli.model_type import MODEL, SPELLINGS
from minfer.core.units import counted

EPILOG = f"""All words after MODEL are the text; without words it is all of stdin, less one final newline.

{SPELLINGS}"""


@click.command(context_settings=HELP, epilog=EPILOG)
@click.argument("model", type=MODEL)
@click.argument("words", nargs=-1, metavar="[TEXT WORDS]...")
@click.option("-f", "--file", "text_file", type=click.Path(path_type=Path), help="read the text from a file")
@click.option("--ids", is_flag=True, help="only the ids, as a list that JSON and Python read")
@click.option("--show-count", is_flag=True, help="say last how many tokens there are")
@click.option("--no-bos", is_flag=True, help="do not put the model's BOS in front, nor its EOS behind")
@click.option("--no-parse-special", is_flag=True, help="read control tokens in the text as plain text")
@click.option("--json", "as_json", is_flag=True, help="one JSON object")
@click.option("-q", "--quiet", is_flag=True, help="nothing on stderr but errors")
@click.option("--verbose", is_flag=True, expose_value=False, help="details of an unexpected failure")
def tokenize(
    model: str,
    words: tuple[str, ...],
    text_file: Path | None,
    **flags: bool,
) -> None:
    """Show the tokens that MODEL reads a text as: id, bytes and piece, one a line."""
    from minfer.run.opening import opened_for
    from minfer.run.prompt import read_text
    from minfer.run.status import Status
    from minfer.run.tokens import TokenTable

    status = Status(quiet=flags["quiet"])
    text, _ = read_text(words, text_file)
    with opened_for("tokenize", model, status) as opened:
        tokenizer = opened.tokenizer
        ids = tokenizer.encode(
            text, add_special=not flags["no_bos"], parse_special=not flags["no_parse_special"]
        )
        table = TokenTable(tokenizer, ids)
        for warning in table.warnings:
            status.say(f"Warning: {warning}")
        if flags["as_json"]:
            table.print_json()
        elif flags["ids"]:
            table.print_ids()
        else:
            table.print_rows()
        if flags["show_count"] and not flags["as_json"]:
            click.echo(counted(len(ids), "token"))
