"""ONNX files of a model: the graphs it consists of, how they are written and checked, and the folder around them."""
