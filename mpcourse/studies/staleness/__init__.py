"""What waiting costs and what staleness costs: one small training in many ways, over many seeds, on virtual ranks."""
