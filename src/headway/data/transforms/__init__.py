"""What is done to images and sounds before a model sees them: frozen values, called with all chance they may use."""
