"""Pictures of the documentation, drawn from real models."""
