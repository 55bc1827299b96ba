"""torch.nn.utils.convert_parameters's names."""

from .clip import parameters_to_vector, vector_to_parameters

__all__ = ["parameters_to_vector", "vector_to_parameters"]
