"""Makes Hugging Face checkpoint folders: from GGUF files, or tiny random ones for tests."""
