"""GPU kernels for a denoise step. Knows tensors; never what a token, a model or a request is."""
