"""How the inspector looks: tensors, differences, models, and the widget that asks again."""
