all:
	@exec cat $(LAB_RUN)/fifo
