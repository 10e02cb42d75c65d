"""What results say: curves, profiles, tables and plots. Reads JSON only."""
