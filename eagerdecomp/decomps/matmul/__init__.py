"""Decompositions of matrix products, convolution, attention, recurrent layers and Fourier transforms."""
