"""Logits to one token: pure steps over candidates in llama.cpp's order, then one counter-based draw."""

from minfer.engine.sampling.candidates import BrokenLogitsError, Candidates, combine_queries
from minfer.engine.sampling.chain import Draw, SamplerChain, Stage
from minfer.engine.sampling.dry import Vocabulary

__all__ = [
    "BrokenLogitsError",
    "Candidates",
    "Draw",
    "SamplerChain",
    "Stage",
    "Vocabulary",
    "combine_queries",
]
