"""torchaudio's ops: recursive filters and forced alignment."""
