module g
go 1.20
