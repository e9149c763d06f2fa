import settings

print(settings.VALUE)
