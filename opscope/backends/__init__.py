"""The ways to record a program, the choice among them, and a capture with the best one that can start."""

from __future__ import annotations

from .base import Auto, Availability, Backend
from .best import Best, begin
from .choice import (
    REQUESTED,
    Choice,
    candidates,
    choose,
    has_gpu,
    here,
    make,
    offered,
    ranked,
    warn_unheard,
)
from .machine import Machine, gpu_vendor, under_nsys

__all__ = [
    "REQUESTED",
    "Auto",
    "Availability",
    "Backend",
    "Best",
    "Choice",
    "Machine",
    "begin",
    "candidates",
    "choose",
    "gpu_vendor",
    "has_gpu",
    "here",
    "make",
    "offered",
    "ranked",
    "under_nsys",
    "warn_unheard",
]
