"""What every widget needs: its files, its data as bytes, its place on top of a picture, its life."""
