"""The words of docs/findings.md. Numbers are not written here: `answers.py` puts them in from stored results."""

from collections.abc import Sequence
from dataclasses import dataclass

FOREWORD = """# What we found

Written by `offbeat claims --findings` from the results that the package carries; a test compares, and no number of a
result was typed in. Everything here was run at reduced size, often with one seed, and says so: read it as what the runs
so far say, not as the last word. `offbeat reproduce RECIPE` runs it again. What was run, when and on what is in
[reproduce](reproduce.md); the rule behind every verdict, fixed before the run, is in [claims](claims.md).
"""


@dataclass(frozen=True)
class PaperQuestion:
    """A question, what the runs say to it, with places for numbers, and the recipes whose claims belong to it."""

    question: str
    said: str
    """Paragraphs, with an empty line between two."""
    recipes: Sequence[str]
    figures: Sequence[str] = ()


_DELAYS = """
Hardly by themselves, if all workers are late alike and see the same kind of data: with the data split among 5
workers, accuracy is {ours lamour2023-table2 delay=0ms,workers=5,partition=dataset}% without delay and {ours
lamour2023-table2 delay=90ms,workers=5,partition=dataset}% with 90 ms on everybody. A delay that all share does not
make gradients staler: everybody takes longer, and as many updates fit in between.

What seems to hurt is one slow worker who alone holds some of the labels. With labels split among 5 workers it is
{ours lamour2023-table2 delay=90ms,workers=5,partition=labels}% with 90 ms on all, and {ours lamour2023-table2
delay=90ms@0,workers=5,partition=labels}% if one is slower still (published: {published lamour2023-table2
delay=90ms,workers=5,partition=labels}% and {published lamour2023-table2 delay=90ms@0,workers=5,partition=labels}%).

But by these runs it is not the staleness of its gradients.
In the authors' code every worker has a budget of its own, so that the
slow one trains alone at the end, on its own labels, and the network forgets the others. With one budget for all
together nobody trains alone, and what split labels cost with one slow worker falls from {claim lamour2023-table2
labels-cost-one-slow} points to {variant lamour2023-table2 labels-cost-one-slow global-budget}. The paper's headline
is about how training ended.

Class by class one sees whom the network forgets. With ten workers who have a label each, the recall of the slow
worker's own class is {ours lamour2023-table1 score=recall,class=0}% where every worker has a budget of its own (a seed
that diverged has no scores and is left out), and that of class 4 is {ours lamour2023-table1 score=recall,class=4}%. The
paper has {published lamour2023-table1 score=recall,class=0}% and {published lamour2023-table1 score=recall,class=4}%:
there, too, one class takes nearly everything, but not the slow worker's.
"""
_LABELS = """
No. Over all asynchronous cells, split data less split labels is {claim lamour2023-table2 labels-hurt} points.
Synchronous SGD does not mind: with 5 workers it is {ours lamour2023-table2 delay=sync,workers=5,partition=labels}%
with split labels and {ours lamour2023-table2 delay=sync,workers=5,partition=dataset}% with split data, since every
step sees all labels.

The paper's headline of what splitting labels costs does not follow from its table as a whole: it is the mean over the
rows with one slow worker alone (the claims labels-cost and labels-cost-one-slow above).
"""
_MOMENTUM = """
It sets a limit that moves with the number of workers. With labels split and one slow worker, momentum 0.99 ends at
chance in a share of {claim lamour2023-table3 high-momentum-fails} of the cells with 5 and 10 workers, as the paper
says. Momentum 0.9 is the best of four in a share of {claim lamour2023-table3 usual-momentum-best} of the pairs of
delay and workers.
"""
_COMPENSATION = """
Little, so far. With a compensation that really compensates, lambda 2 changes accuracy by {claim lamour2023-table4
lambda-2} points, and lambda 5 by {claim lamour2023-table4 lambda-5}. In the authors' code the copies that it needs
are the live parameters themselves, so that it did nothing, and the differences in their table are those from one run
to the next. What the text says of it is contradicted by the table it speaks of.
"""
_STALENESS = """
In the mean by one update for every other worker, whatever their times are: while one computes, each of the others
brings one gradient in the mean. For 8 workers and more a normal distribution describes it well: the largest error of
the fit is {claim jain2018-figure1 normal} with the paper's compute times. It is {variant jain2018-figure1 normal
exponential} with exponential ones, and {variant jain2018-figure1 normal one-slow} if one worker is five times as
slow: then the mean is the same, and says little.

It cannot be ignored where the problem is dense. Under the all-to-all exchange of tosi2022, which that paper found
harmless for word2vec, LeNet-5 on digits ends at {ours tosi2022-dense nodes=1}% with 4 models, at {ours tosi2022-dense
nodes=4}% with 16 and at {ours tosi2022-dense nodes=16}% with 64, after the same number of epochs.
"""
_SYNC = """
By the clock alone, when one server is the bottleneck. ResNet-50 on 3,200 nodes that exchange with one server every
step would take {ours wongpanich2020-figure2 nodes=3200,exchange=every step} minutes for 90 epochs if the server's
link is as fast as a node's, and no less than on 200 nodes ({ours wongpanich2020-figure2 nodes=200,exchange=every
step}); the paper reports {published wongpanich2020-figure2 nodes=3200,exchange=every step}. With the parameters
spread over 64 servers it is {variant wongpanich2020-figure2 fifteen-minutes sharded}: the number is possible if no
single machine's link is in the way, and the paper does not say how that was. Exchanging every 16 steps with one
server gives {ours wongpanich2020-figure2 nodes=3200,exchange=every 16 steps}.

On as few machines as in Table 7 and on a fast network, the clock finds the asynchronous solver faster for all four
models, since the synchronous one waits for the slowest. What decides is the network: on one a hundred times slower
the ratio of synchronous to asynchronous speed for GoogLeNet is {variant wongpanich2020-speed GoogLeNet slowest}
instead of {claim wongpanich2020-speed GoogLeNet}, because then the server's link is full.

A ring of 3,200 nodes does suffer from its many messages, but what groups bring depends on how they sum inside. Here a
leader receives one member after the other over a link like any other, which costs more than it saves at 5 us a
message (time of the ring over that of groups of 16: {claim wongpanich2020-allreduce ring-beyond-1k}); at 50 us it is
{variant wongpanich2020-allreduce ring-beyond-1k slow-messages}.
"""
ANSWERS = (
    PaperQuestion("How do delays hurt?", _DELAYS, ("lamour2023-table2", "lamour2023-table1"), ("lamour2023-table2",)),
    PaperQuestion("Does splitting labels help?", _LABELS, ()),
    PaperQuestion(
        "What does momentum do?", _MOMENTUM, ("lamour2023-table3", "lamour2023-figures1-2"), ("lamour2023-table3",)
    ),
    PaperQuestion("When does delay compensation help?", _COMPENSATION, ("lamour2023-table4",), ("lamour2023-table4",)),
    PaperQuestion(
        "How stale are gradients, and when can it be ignored?",
        _STALENESS,
        ("jain2018-figure1", "jain2018-faithful", "jain2018-halving", "tosi2022-figure1", "tosi2022-dense"),
        ("jain2018-figure1",),
    ),
    PaperQuestion(
        "When does synchronous training win?",
        _SYNC,
        ("wongpanich2020-figure2", "wongpanich2020-speed", "wongpanich2020-allreduce", "wongpanich2020-table6"),
        ("wongpanich2020-figure2",),
    ),
)
