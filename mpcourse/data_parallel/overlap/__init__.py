"""All-reduces that run while other gradients are computed: buckets, requests, gradient fusion."""
