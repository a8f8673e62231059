"""The colours of all pictures: those of Okabe & Ito (2008), which every kind of colour vision tells
apart."""



COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#595959")
