"""Data of the benchmarks: sets by name, and their batches."""

from benchmarks.data.batches import (
    ArrayPipeline,
    GraphPipeline,
    ImagePipeline,
    Pipeline,
    TextPipeline,
)
from benchmarks.data.containers import Arrays, Graph, Images, Split, Text
from benchmarks.data.folders import data_folder
from benchmarks.data.images import cut, synthetic
from benchmarks.data.registry import NAMES, load
from benchmarks.data.text import read_text

__all__ = [
    "NAMES",
    "ArrayPipeline",
    "Arrays",
    "Graph",
    "GraphPipeline",
    "ImagePipeline",
    "Images",
    "Pipeline",
    "Split",
    "Text",
    "TextPipeline",
    "cut",
    "data_folder",
    "load",
    "read_text",
    "synthetic",
]
