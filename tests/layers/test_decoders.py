from __future__ import annotations

import pytest
import torch

from gnnflow.config import model_from_dict
from gnnflow.graph.errors import LayerError
from gnnflow.layers import ModelInputs, build_model, load_model, save_model
from gnnflow.layers.decoders import DecoderInputs, DistMult, Dot, build_decoder
from gnnflow.layers.saved import encode_weights

SOURCE, TARGET = torch.randn(6, 5), torch.randn(6, 5)


def test_dot_is_the_inner_product() -> None:
    expected = torch.stack([s @ t for s, t in zip(SOURCE, TARGET, strict=True)])[:, None]
    torch.testing.assert_close(Dot()(SOURCE, TARGET), expected)


def test_distmult_is_the_bilinear_form_of_a_diagonal_per_output() -> None:
    decoder = DistMult(5, 3)
    for output, relation in enumerate(decoder.relation):
        expected = torch.stack([s @ torch.diag(relation) @ t for s, t in zip(SOURCE, TARGET, strict=True)])
        torch.testing.assert_close(decoder(SOURCE, TARGET)[:, output], expected)


def test_distmult_of_one_output_begins_as_dot() -> None:
    torch.testing.assert_close(DistMult(5, 1)(SOURCE, TARGET), Dot()(SOURCE, TARGET))


def test_mlp_tells_the_ends_apart_and_the_others_do_not() -> None:
    torch.manual_seed(0)
    for kind, symmetric in (("dot", True), ("distmult", True), ("mlp", False)):
        decoder = build_decoder(DecoderInputs(kind), 5)  # type: ignore[arg-type]
        assert torch.equal(decoder(SOURCE, TARGET), decoder(TARGET, SOURCE)) == symmetric


def test_dot_refuses_several_outputs() -> None:
    with pytest.raises(LayerError, match=r"one score, but the task has 3.*distmult or mlp"):
        build_decoder(DecoderInputs("dot", 3), 5)


@pytest.mark.parametrize("kind", ["dot", "distmult", "mlp"])
def test_a_saved_model_scores_pairs_as_before(tmp_path, kind) -> None:  # type: ignore[no-untyped-def]
    config = model_from_dict({"kind": "gcn", "hidden": 4})
    inputs = ModelInputs(7, 5, decoder=DecoderInputs(kind, hidden=3))
    model = build_model(config, inputs).eval()
    save_model(str(tmp_path), config, inputs, weights=encode_weights(model.state_dict()))
    again = load_model(str(tmp_path))
    assert again.inputs == inputs
    torch.testing.assert_close(again.score(SOURCE, TARGET), model.score(SOURCE, TARGET), rtol=0, atol=0)


def test_a_decoder_changes_no_other_weight() -> None:
    config = model_from_dict({"kind": "gat", "hidden": 4})
    states = []
    for decoder in (None, DecoderInputs("mlp")):
        torch.manual_seed(3)
        states.append(build_model(config, ModelInputs(7, 5, decoder=decoder)).state_dict())
    for name, tensor in states[0].items():
        assert torch.equal(tensor, states[1][name])


@pytest.mark.parametrize("kind", ["dot", "distmult", "mlp"])
def test_all_pairs_have_the_scores_that_pairs_have_by_themselves(kind) -> None:  # type: ignore[no-untyped-def]
    decoder = build_decoder(DecoderInputs(kind, hidden=3), 5)
    for weight in decoder.parameters():
        torch.nn.init.normal_(weight)
    targets = torch.randn(4, 5)
    sources, others = SOURCE.repeat_interleave(4, 0), targets.repeat(6, 1)
    torch.testing.assert_close(decoder.score_all(SOURCE, targets).flatten(), decoder(sources, others)[:, 0])
