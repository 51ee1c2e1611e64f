"""What agents may ask of the store over the Model Context Protocol."""
