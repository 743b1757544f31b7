"""The pure LSTM of wongpanich2020, section 4.5.3."""

from torch import Tensor, nn

from offbeat.tasks.models import Shape


class RowLSTM(nn.Module):
    """A picture as a sequence of its rows: each is transformed, fed to an LSTM, and the last state is classified."""

    def __init__(self, width: int, classes: int, hidden: int) -> None:
        super().__init__()
        self.transform = nn.Linear(width, hidden)
        self.lstm = nn.LSTM(hidden, hidden, batch_first=True)
        self.output = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.transpose(1, 2).flatten(2)  # (N, C, H, W) -> (N, H, C W): one row of all channels a step
        states, _ = self.lstm(self.transform(rows))
        out: Tensor = self.output(states[:, -1])
        return out


def lstm(shape: Shape = (1, 28, 28), classes: int = 10, hidden: int = 128) -> nn.Module:
    """28 steps of 28 pixels, transformed to 128, then 128 hidden: 137,098 parameters (torch's two biases counted)."""
    channels, _, width = shape
    return RowLSTM(channels * width, classes, hidden)
