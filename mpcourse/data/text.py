"""The text that the lessons' small GPT reads: part of this course's own prose, as it was in November 2026."""

from dataclasses import dataclass
from pathlib import Path

import torch

from mpcourse.common.errors import UserError

CHARACTERS = "\n" + "".join(map(chr, range(32, 127)))  # a line break, and ASCII from the space to ~


@dataclass(frozen=True)
class Text:
    """A text as tokens, one for each character, in two parts.

    train: int64 (n,), values below `vocabulary`.
    validation: int64 (m,), the end of the text, which no training step sees.
    vocabulary: number of different tokens; a model that guesses among all of them has a loss of ln(vocabulary).
    """

    train: torch.Tensor
    validation: torch.Tensor
    vocabulary: int = len(CHARACTERS)


def encode(text: str) -> torch.Tensor:
    """Return the tokens of a text: int64 (n,), the place of each character in CHARACTERS.

    text: printable ASCII and line breaks.
    Raises UserError, naming the character, for any other.
    """
    for character in text:
        if character not in CHARACTERS:
            raise UserError(f"only printable ASCII and line breaks have tokens, not {character!r}")
    return torch.tensor([CHARACTERS.index(character) for character in text], dtype=torch.int64)


def decode(tokens: torch.Tensor) -> str:
    """Return the text of some tokens.

    tokens: int64 (n,).
    """
    return "".join(CHARACTERS[token] for token in tokens.tolist())


def course_text(held_out: float = 0.1) -> Text:
    """Return the prose of lessons 00 and 02 to 09, about 134 000 characters.

    held_out: share of the text, from its end, that becomes the validation part; above 0 and below 1.

    The file is frozen, so that a loss can be compared with one from last year. A line holds a paragraph, without its
    formatting. Code, tables, formulas and addresses were left out.
    Raises UserError for another share.
    """
    if not 0 < held_out < 1:
        raise UserError(f"held_out must be above 0 and below 1, not {held_out!r}")
    tokens = encode(Path(__file__).with_name("course.txt").read_text(encoding="ascii"))
    split = round(len(tokens) * (1 - held_out))
    return Text(tokens[:split], tokens[split:])


def draw_batch(
    tokens: torch.Tensor, batch: int, length: int, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return random pieces of a text, and the token that follows each of their tokens: two int64 (batch, length).

    tokens: int64 (n,), with n above `length`.
    batch: number of pieces. They may overlap.
    length: tokens of a piece.
    generator: draws where the pieces begin, so that one seed gives the same batches again.
    Raises UserError for a text that is too short.
    """
    if not 0 < length < len(tokens):
        raise UserError(f"a text of {len(tokens)} tokens has no pieces of {length} tokens and one more")
    begins = torch.randint(len(tokens) - length, (batch, 1), generator=generator)
    places = begins + torch.arange(length)
    return tokens[places], tokens[places + 1]
