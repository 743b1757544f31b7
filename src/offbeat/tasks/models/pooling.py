"""Max-pooling over 2x2 squares, at the speed of the machine where no gradient is asked for."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class MaxPool2x2(nn.MaxPool2d):
    """nn.MaxPool2d(2): the same values always, and in evaluation on the processor without its price.

    torch's pooling remembers which of the four was largest and looks at them one by one: half of the time of a
    forward pass of LeNet-5. Without a gradient to send back only the maximum matters, and of slices it is vectorised.
    """

    def __init__(self) -> None:
        super().__init__(2)

    def forward(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled() or x.device.type != "cpu" or x.dim() < 3 or min(x.shape[-2:]) < 2:
            return F.max_pool2d(x, 2)
        height, width = (2 * (side // 2) for side in x.shape[-2:])  # an odd row or column at the end is left out
        rows = torch.maximum(x[..., 0:height:2, :width], x[..., 1:height:2, :width])
        return torch.maximum(rows[..., 0::2], rows[..., 1::2])
