"""Parameters that share memory cannot be independent variables, and are refused wherever live parameters come in."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from levelport import Every, ModuleObjective, ObjectiveError, Teleported, Teleporter
from levelport.objectives.parameters import ParametersObjective


class Holder(nn.Module):
    """A module of these parameters."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        super().__init__()
        self.entries = nn.ParameterList(parameters)

    def forward(self, x: Tensor) -> Tensor:
        return x.sum() + torch.stack([p.square().sum() for p in self.entries]).sum()


def live(parameters: list[nn.Parameter]) -> ParametersObjective:
    return ParametersObjective(parameters, lambda: Holder(parameters)(torch.zeros(1)))


def of_a_module(parameters: list[nn.Parameter]) -> ModuleObjective:
    return ModuleObjective(Holder(parameters), lambda output, y: output + y.sum(), torch.zeros(1), torch.zeros(1))


DOORS: list[Callable[[list[nn.Parameter]], object]] = [
    live,
    of_a_module,
    lambda parameters: Teleported(torch.optim.SGD(parameters, lr=0.1), Every(1)),
    lambda parameters: Teleporter(torch.optim.SGD(parameters, lr=0.1), Every(1)),
]


def same_memory() -> list[nn.Parameter]:
    first = nn.Parameter(torch.ones(3))
    return [nn.Parameter(torch.ones(2)), first, nn.Parameter(first.data)]


def overlapping_views() -> list[nn.Parameter]:
    flat = torch.ones(6)
    return [nn.Parameter(flat[4:]), nn.Parameter(flat[:3]), nn.Parameter(flat[2:4])]


def row_and_column() -> list[nn.Parameter]:
    matrix = torch.ones(3, 3)
    return [nn.Parameter(matrix[:, 1]), nn.Parameter(matrix[1])]


def one_inside_another() -> list[nn.Parameter]:
    flat = torch.ones(9)
    return [nn.Parameter(flat[1:2]), nn.Parameter(flat), nn.Parameter(flat[7:])]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("make", [same_memory, overlapping_views, row_and_column, one_inside_another])
def test_shared_memory_is_refused_with_a_remedy(
    door: Callable[[list[nn.Parameter]], object], make: Callable[[], list[nn.Parameter]]
) -> None:
    with pytest.raises(ObjectiveError, match=r"share memory.*Tie them as one nn\.Parameter"):
        door(make())


def test_the_two_are_named() -> None:
    with pytest.raises(ObjectiveError, match=r"parameters 1 and 2, of shapes \(3,\) and \(2,\)"):
        live(overlapping_views())


def views_of_one_buffer() -> list[nn.Parameter]:
    flat = torch.arange(7.0)
    return [nn.Parameter(flat[4:]), nn.Parameter(flat[:4].view(2, 2))]


def columns_of_one_matrix() -> list[nn.Parameter]:
    matrix = torch.arange(12.0).view(3, 4)
    return [nn.Parameter(matrix[:, 3:]), nn.Parameter(matrix[:, :2]), nn.Parameter(matrix[:, 2])]


def with_empty_ones() -> list[nn.Parameter]:
    flat = torch.ones(3)
    return [nn.Parameter(torch.ones(0)), nn.Parameter(flat), nn.Parameter(torch.ones(0)), nn.Parameter(flat[:0])]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("make", [views_of_one_buffer, columns_of_one_matrix, with_empty_ones])
def test_disjoint_views_and_empty_parameters_are_welcome(
    door: Callable[[list[nn.Parameter]], object], make: Callable[[], list[nn.Parameter]]
) -> None:
    door(make())


@pytest.mark.parametrize("make", [views_of_one_buffer, columns_of_one_matrix])
def test_parameters_in_one_buffer_are_where_the_vector_says(make: Callable[[], list[nn.Parameter]]) -> None:
    objective = live(make())
    x = torch.linspace(-1.0, 2.0, objective.dimension)
    assert objective.at(x).value == pytest.approx(float(x.square().sum()))
    assert torch.equal(objective.current(), x)


def test_frozen_parameters_may_share_their_memory() -> None:
    moving, frozen = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2), requires_grad=False)
    module = Holder([moving, frozen, nn.Parameter(frozen.data, requires_grad=False)])
    assert of_a_module(list(module.entries)).dimension == 2


def test_a_recurrent_network_keeps_its_flat_weights() -> None:
    network = nn.LSTM(3, 4, num_layers=2)
    network.flatten_parameters()
    x = torch.zeros(5, 3)
    assert ParametersObjective(network.parameters(), lambda: F.mse_loss(network(x)[0], torch.ones(5, 4))).dimension > 0
