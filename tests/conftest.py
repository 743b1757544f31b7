"""One intra-op thread in every test: the number of threads changes bits."""

import pytest
import torch

pytest_plugins = ["topics"]  # the text and the task that the tests of word2vec share


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
