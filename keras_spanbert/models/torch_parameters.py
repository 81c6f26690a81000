"""Registers the weights of a model as PyTorch parameters."""

import keras


def register_parameters(model: keras.Model) -> None:
    """Makes a model's weights visible to `parameters`, `state_dict` and `load_state_dict`.

    On PyTorch, keras-hub's models set attributes without `torch.nn.Module` while
    they are constructed, including Keras's own table of parameters. The module
    would silently have no parameters to train or load. Backbones and tasks call this at
    the end of their constructors. The other backends need nothing.
    """
    if keras.backend.backend() != "torch":
        return
    import torch

    for name, value in list(vars(model).items()):
        if isinstance(value, torch.nn.ParameterDict):
            torch.nn.Module.__setattr__(model, name, value)
