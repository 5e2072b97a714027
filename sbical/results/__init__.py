"""What a calibration leaves: draws, ranges, exports, report, and the folder that holds them."""
