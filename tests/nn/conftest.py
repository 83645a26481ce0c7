import pytest
import torch

GATES = {"lstm": 4, "gru": 3, "rnn": 1}


@pytest.fixture
def literal_layer():
    """A recurrent layer as its equations are written: one time step and one gate at a time."""
    return _literal_layer


def _literal_layer(cell, x, state, weights, input_mask=None, recurrent_mask=None):
    """Outputs, last h and last c. A mask has an axis for time and one for gates, or 1, or none."""
    gates, (h, c) = GATES[cell], state
    input_mask, recurrent_mask = (
        None if mask is None else _each(mask, len(x), gates)
        for mask in (input_mask, recurrent_mask)
    )
    w_ih, w_hh, b_ih, b_hh = (part.chunk(gates) for part in weights)
    outputs = []
    for time in range(len(x)):
        of_x, of_h = [], []
        for gate in range(gates):
            seen = x[time] if input_mask is None else x[time] * input_mask[time, gate]
            known = h if recurrent_mask is None else h * recurrent_mask[time, gate]
            of_x.append(seen @ w_ih[gate].T + b_ih[gate])
            of_h.append(known @ w_hh[gate].T + b_hh[gate])
        if cell == "lstm":
            i, f, g, o = (one + other for one, other in zip(of_x, of_h, strict=True))
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
        elif cell == "gru":
            r = torch.sigmoid(of_x[0] + of_h[0])
            z = torch.sigmoid(of_x[1] + of_h[1])
            n = torch.tanh(of_x[2] + r * of_h[2])
            h = (1 - z) * n + z * h
        else:
            h = torch.tanh(of_x[0] + of_h[0])
        outputs.append(h)
    return torch.stack(outputs), h, c


def _each(mask, steps, gates):
    mask = mask if mask.dim() == 4 else mask[:, None]
    return mask.expand(steps, gates, *mask.shape[2:])
