"""Audio models: speech recognition with CTC, speech to text, text to speech, source separation, codecs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from conformance.models.entry import Entry, Subject
from conformance.models.language import VOCABULARY, hf_entry

__all__ = ["ENTRIES"]

SPEECH: dict[str, Any] = {
    "vocab_size": 20,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "conv_dim": (16, 16),
    "conv_kernel": (10, 3),
    "conv_stride": (5, 2),
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 2,
    "apply_spec_augment": False,
    "ctc_loss_reduction": "mean",
    "pad_token_id": 0,
}


def _speech() -> dict[str, Tensor]:
    mask = torch.ones(2, 800, dtype=torch.long)
    mask[1, -200:] = 0
    return {"input_values": torch.randn(2, 800), "attention_mask": mask, "labels": torch.randint(1, 20, (2, 6))}


def _spoken_classes() -> dict[str, Tensor]:
    return {**_speech(), "labels": torch.tensor([0, 1])}


def _mel(frames: int = 40, mels: int = 16) -> Any:
    return lambda: {"input_features": torch.randn(2, mels, frames), "labels": torch.randint(3, VOCABULARY, (2, 7))}


WHISPER: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "num_mel_bins": 16,
    "max_source_positions": 20,
    "max_target_positions": 32,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
}

TRANSFORMERS = (
    hf_entry("wav2vec2, ctc", "Wav2Vec2Config", "Wav2Vec2ForCTC", _speech, SPEECH),
    hf_entry(
        "wav2vec2, layer norm",
        "Wav2Vec2Config",
        "Wav2Vec2ForSequenceClassification",
        _spoken_classes,
        {**SPEECH, "feat_extract_norm": "layer", "do_stable_layer_norm": True},
    ),
    hf_entry("hubert, ctc", "HubertConfig", "HubertForCTC", _speech, SPEECH),
    hf_entry("wavlm, ctc", "WavLMConfig", "WavLMForCTC", _speech, SPEECH),
    hf_entry("sew, ctc", "SEWConfig", "SEWForCTC", _speech, SPEECH),
    hf_entry("unispeech-sat, ctc", "UniSpeechSatConfig", "UniSpeechSatForCTC", _speech, SPEECH),
    hf_entry("data2vec-audio, ctc", "Data2VecAudioConfig", "Data2VecAudioForCTC", _speech, {**SPEECH, "conv_pos_kernel_size": 5}),
    hf_entry("wav2vec2-conformer, ctc", "Wav2Vec2ConformerConfig", "Wav2Vec2ConformerForCTC", _speech, SPEECH),
    hf_entry("whisper", "WhisperConfig", "WhisperForConditionalGeneration", _mel(), WHISPER),
    hf_entry(
        "speech2text",
        "Speech2TextConfig",
        "Speech2TextForConditionalGeneration",
        lambda: {"input_features": torch.randn(2, 40, 16), "labels": torch.randint(3, VOCABULARY, (2, 7))},
        {**WHISPER, "input_feat_per_channel": 16, "conv_channels": 32, "max_source_positions": 64},
    ),
    hf_entry(
        "speecht5",
        "SpeechT5Config",
        "SpeechT5ForTextToSpeech",
        lambda: {
            "input_ids": torch.randint(4, 20, (2, 8)),
            "attention_mask": torch.ones(2, 8, dtype=torch.long),
            "labels": torch.randn(2, 16, 16),
            "speaker_embeddings": torch.randn(2, 8),
        },
        {
            "vocab_size": 20,
            "hidden_size": 32,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 64,
            "decoder_ffn_dim": 64,
            "num_mel_bins": 16,
            "speaker_embedding_dim": 8,
            "speech_decoder_prenet_units": 16,
            "speech_decoder_postnet_units": 16,
            "speech_decoder_prenet_dropout": 0.0,
        },
    ),
    hf_entry(
        "vits",
        "VitsConfig",
        "VitsModel",
        lambda: {"input_ids": torch.randint(4, 20, (1, 8))},
        {
            "vocab_size": 20,
            "hidden_size": 16,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "ffn_dim": 32,
            "flow_size": 16,
            "spectrogram_bins": 16,
            "upsample_initial_channel": 16,
            "wavenet_dilation_rate": 1,
            "noise_scale": 0.0,
            "noise_scale_duration": 0.0,
        },
    ),
    hf_entry(
        "ast",
        "ASTConfig",
        "ASTForAudioClassification",
        lambda: {"input_values": torch.randn(2, 32, 16), "labels": torch.tensor([0, 1])},
        {
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "intermediate_size": 64,
            "patch_size": 4,
            "max_length": 32,
            "num_mel_bins": 16,
            "frequency_stride": 4,
            "time_stride": 4,
        },
    ),
    hf_entry(
        "encodec",
        "EncodecConfig",
        "EncodecModel",
        lambda: {"input_values": torch.randn(2, 1, 400)},
        {"num_filters": 4, "hidden_size": 16, "codebook_size": 16, "codebook_dim": 16, "num_lstm_layers": 1},
    ),
    hf_entry(
        "parakeet, ctc",
        "ParakeetCTCConfig",
        "ParakeetForCTC",
        lambda: {
            "input_features": torch.randn(2, 64, 16),
            "attention_mask": torch.ones(2, 64, dtype=torch.bool),
            "labels": torch.randint(1, 20, (2, 4)),
        },
        {
            "vocab_size": 21,
            "pad_token_id": 20,
            "encoder_config": {
                "hidden_size": 32,
                "num_hidden_layers": 2,
                "num_attention_heads": 4,
                "intermediate_size": 64,
                "num_mel_bins": 16,
                "subsampling_conv_channels": 8,
            },
        },
    ),
)


# -- source separation and recognition in plain torch --------------------------------------------------------------


class _Block(nn.Module):
    def __init__(self, channels: int, hidden: int, dilation: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv1d(channels, hidden, 1),
            nn.PReLU(),
            nn.GroupNorm(1, hidden),
            nn.Conv1d(hidden, hidden, 3, padding=dilation, dilation=dilation, groups=hidden),
            nn.PReLU(),
            nn.GroupNorm(1, hidden),
            nn.Conv1d(hidden, channels, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x)


class ConvTasNet(nn.Module):
    """Conv-TasNet (Luo and Mesgarani): a learned filter bank, masks from dilated convolutions, and the inverse filter bank."""

    def __init__(self, sources: int = 2, filters: int = 16) -> None:
        super().__init__()
        self.sources, self.filters = sources, filters
        self.encoder = nn.Conv1d(1, filters, 16, stride=8, bias=False)
        self.norm = nn.GroupNorm(1, filters)
        self.blocks = nn.Sequential(*(_Block(filters, 24, 2**one) for one in range(3)))
        self.masks = nn.Conv1d(filters, sources * filters, 1)
        self.decoder = nn.ConvTranspose1d(filters, 1, 16, stride=8, bias=False)

    def forward(self, mixture: Tensor) -> Tensor:
        bank = self.encoder(mixture[:, None])
        masks = self.masks(self.blocks(self.norm(bank))).unflatten(1, (self.sources, self.filters)).sigmoid()
        separate = self.decoder((masks * bank[:, None]).flatten(0, 1))
        return separate.unflatten(0, (len(mixture), self.sources)).squeeze(2)


def _scale_invariant(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Return the negative scale-invariant signal-to-distortion ratio, for the better order of the sources."""
    mixture, sources = batch
    guess = model(mixture)
    both = torch.stack([_distortion(guess, sources), _distortion(guess.flip(1), sources)])
    return both.min(0).values.mean()


def _distortion(guess: Tensor, source: Tensor) -> Tensor:
    scaled = (guess * source).sum(-1, keepdim=True) / source.square().sum(-1, keepdim=True) * source
    return -10 * torch.log10(scaled.square().sum(-1) / (guess - scaled).square().sum(-1)).mean(-1)


def _separator() -> Subject:
    return Subject(
        ConvTasNet(), (torch.randn(2, 160), torch.randn(2, 2, 160)), lambda model, batch: model(batch[0]), _scale_invariant
    )


class SpectrogramNet(nn.Module):
    """Speech recognizer on a short-time Fourier transform, trained with CTC."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(32))
        self.convolution = nn.Conv1d(17, 24, 3, padding=1)
        self.recurrent = nn.GRU(24, 16, bidirectional=True, batch_first=True)
        self.head = nn.Linear(32, 8)

    def forward(self, wave: Tensor) -> Tensor:
        spectrum = torch.stft(wave, 32, hop_length=16, window=self.window, return_complex=True)
        features = self.convolution((spectrum.abs() + 1e-6).log()).relu().transpose(1, 2)
        return self.head(self.recurrent(features)[0]).log_softmax(-1)


def _ctc(model: nn.Module, batch: Any) -> Tensor:
    wave, labels, lengths = batch
    scores = model(wave).transpose(0, 1)
    return nn.functional.ctc_loss(scores, labels, torch.full((len(wave),), len(scores)), lengths)


def _recogniser() -> Subject:
    batch = (torch.randn(2, 320), torch.randint(1, 8, (2, 5)), torch.tensor([5, 3]))
    return Subject(SpectrogramNet(), batch, lambda model, batch: model(batch[0]), _ctc)


PLAIN = (Entry("conv-tasnet", _separator), Entry("spectrogram, GRU, CTC", _recogniser))

ENTRIES = (*TRANSFORMERS, *PLAIN)
