"""How good is a target, and what does its quantisation cost? Judgements, stated; docs/catalogue.md.

A profile gives a class of 1 to 5; a quant takes half classes off; a model made for one kind of work
(`uses`) gains half a class for it and loses half a class for everything else.
"""

from __future__ import annotations

from specctl.plan.profile import Model

# Classes taken off by quant, without its UD- prefix. First match of the beginning counts.
# From about 4 bits a weight upwards nothing is taken; below, a little for each half bit.
PENALTIES: tuple[tuple[str, float], ...] = (
    ("IQ1", 3.5),
    ("Q1", 3.5),
    ("IQ2_XXS", 2.5),
    ("IQ2_XS", 2.5),
    ("IQ2", 2.0),
    ("Q2_K", 2.0),
    ("IQ3_XXS", 1.0),
    ("IQ3_XS", 1.0),
    ("IQ3", 0.5),
    ("Q3_K_S", 1.0),
    ("Q3", 0.5),
)
USE_BONUS = 0.5


def bare(quant: str) -> str:
    """`UD-IQ3_XXS` → `IQ3_XXS`."""
    return quant.upper().removeprefix("UD-")


def penalty(quant: str) -> float:
    """Classes that a quant costs; 0 for about 4 bits and more."""
    return next((cost for start, cost in PENALTIES if bare(quant).startswith(start)), 0.0)


def is_low_bit(quant: str) -> bool:
    """1 and 2 bit codebook quants, whose arithmetic shows in the speed."""
    return bare(quant).startswith(("IQ1", "IQ2"))


def quality(model: Model, quant: str, use: str) -> float:
    """The class that ranking sorts by, in half steps."""
    bonus = 0.0 if not model.uses else USE_BONUS if use in model.uses else -USE_BONUS
    return model.quality - penalty(quant) + bonus
