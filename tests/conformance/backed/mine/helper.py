WHO = "beside the backend"
