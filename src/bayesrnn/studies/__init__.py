"""Programs made of everything below: quickstart, bench, reproduce."""
