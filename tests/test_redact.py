"""Secrets do not get out of a command line."""

from __future__ import annotations

import pytest

from zenit_hub.redact import SECRET_OPTIONS, redacted
from zenit_hub.serve_options import known_flags


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["--api-key", "SESAME", "--port", "80"], ["--api-key", "…", "--port", "80"]),
        (["--api-key", "SESAME", "SESAME2"], ["--api-key", "…", "…"]),
        (["--api_key=SESAME"], ["--api_key=…"]),
        (["--api-key=SESAME", "SESAME2", "-tp", "2"], ["--api-key=…", "…", "-tp", "2"]),
        (["--api-k", "SESAME"], ["--api-k", "…"]),
        (["--api", "SESAME"], ["--api", "…"]),
        (["--api-key", "-SESAME"], ["--api-key", "…"]),
        (["--hf-token", "--port", "80"], ["--hf-token", "--port", "80"]),
        (["--hf_tok=SESAME"], ["--hf_tok=…"]),
        (["--hf-overrides.a", "1", "--hf-token", "SESAME"], ["--hf-overrides.a", "1", "--hf-token", "…"]),
        (["--api-server-count", "2"], ["--api-server-count", "2"]),
        (["--of-a-plugin-token", "SESAME"], ["--of-a-plugin-token", "…"]),
        (["--its_password=SESAME"], ["--its_password=…"]),
        (
            ["--model-loader-extra-config", '{"s3_secret_access_key": "SESAME", "a": 1}'],
            ["--model-loader-extra-config", '{"s3_secret_access_key": "…", "a": 1}'],
        ),
        (
            ["--model-loader-extra-config.s3_access_key_id", "SESAME"],
            ["--model-loader-extra-config.s3_access_key_id", "…"],
        ),
        (
            ["--watermark-config", '{"key": 31337, "alpha": 0.1}'],
            ["--watermark-config", '{"key": "…", "alpha": 0.1}'],
        ),
        (["--watermark-config.key=31337"], ["--watermark-config.key=…"]),
        (
            ["--hf-overrides", '{"eos_token": "</s>", "key": 1}'],
            ["--hf-overrides", '{"eos_token": "</s>", "key": 1}'],
        ),
        (
            ["--otlp-traces-endpoint", "https://me:SESAME@host/x"],
            ["--otlp-traces-endpoint", "https://…@host/x"],
        ),
        (["--revision", "hf_SESAMEsesameSESAME"], ["--revision", "hf_…"]),
        (
            ["--load-format", "hf_transfer", "--x", "hf_short"],
            ["--load-format", "hf_transfer", "--x", "hf_short"],
        ),
        (["--tokenizer", "org/model@main"], ["--tokenizer", "org/model@main"]),
        (["--max-num-batched-tokens", "4096"], ["--max-num-batched-tokens", "4096"]),
    ],
)
def test_secrets_are_replaced_however_they_are_typed(words: list[str], shown: list[str]) -> None:
    """One word for one word, and nothing else is touched."""
    assert redacted(words) == shown


def test_the_options_that_hold_secrets_are_options() -> None:
    """A renamed option would show its value."""
    assert set(SECRET_OPTIONS) <= known_flags()


def test_no_option_has_a_secret_s_name_and_is_not_listed() -> None:
    """A version that brings one more (--admin-token, say) is noticed here."""
    suspicious = {flag for flag in known_flags() if flag.endswith(("-key", "-token", "-password", "-secret"))}
    assert suspicious == set(SECRET_OPTIONS)
