"""The maintainer's side: never imported by the serving side."""
