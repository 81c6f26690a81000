"""The weights of a model as PyTorch's own code sees them."""

import keras


def register_parameters(model: keras.Model) -> None:
    """Has PyTorch find a model's weights: `parameters`, `state_dict` and `load_state_dict`.

    On PyTorch, keras-hub's models set attributes around `torch.nn.Module` while
    they are constructed, Keras's own table of parameters among them: the
    module would have none, train none and load none, in silence. On the other
    backends there is nothing to do.

    Args:
        model: `keras_hub.models.Backbone` or `keras_hub.models.Task`, at the
            end of its constructor.
    """
    if keras.backend.backend() != "torch":
        return
    import torch

    for name, value in list(vars(model).items()):
        if isinstance(value, torch.nn.ParameterDict):
            torch.nn.Module.__setattr__(model, name, value)
